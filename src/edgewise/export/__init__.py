"""Results for other programs: networks, GraphML files, tables."""
