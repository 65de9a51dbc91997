"""How records, segments and the index look as bytes. Pure: no store is accessed."""
