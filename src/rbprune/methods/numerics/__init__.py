"""Numerical parts of the methods: lasso, proximal steps, reconstruction, importance scores."""
