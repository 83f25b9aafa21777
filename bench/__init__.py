"""The benchmark: `python -m bench`. docs/performance.md says what its columns mean."""
