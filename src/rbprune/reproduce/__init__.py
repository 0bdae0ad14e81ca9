"""The paper's tables and figures, made anew and put beside what it printed."""
