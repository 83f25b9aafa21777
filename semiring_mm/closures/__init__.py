"""The driver of all eliminations: sources, weights, schedule, steps, trees, progress."""
