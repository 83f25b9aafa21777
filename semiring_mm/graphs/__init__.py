"""Shortest paths and closures: algorithms over the verbs, which do not know the engine."""
