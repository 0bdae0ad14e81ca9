"""A small part of MNIST that comes with the package; see NOTICE.md."""
