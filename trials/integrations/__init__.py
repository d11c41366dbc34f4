"""Thin adapters to the frameworks people train with. Each imports its framework when it is imported itself."""
