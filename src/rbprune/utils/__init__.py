"""Small things that every room uses: files, imports, modes, processes, seeds."""
