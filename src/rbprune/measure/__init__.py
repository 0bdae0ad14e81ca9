"""What a network costs: counted from its channel graph, or measured on a machine; nothing is cut or opened here."""
