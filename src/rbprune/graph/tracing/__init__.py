"""Following a model: from its forward to operations, shapes and channel identities."""
