"""Records as rows of a database: which table and columns, in which statements, once."""
