"""One HTML file that explains some targets: graphs, layers, walks, tables, agreement and trust, without any network use."""
