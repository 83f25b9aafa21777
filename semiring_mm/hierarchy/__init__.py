"""Sparse graphs prepared once: elimination orders, customized weights, sweeps and statistics."""
