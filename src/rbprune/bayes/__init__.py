"""The distributions behind the methods: pure maths, no training."""
