"""Graphs on disk: arrays that are mapped into memory, of which only the neighbourhoods that are asked about are ever read."""
