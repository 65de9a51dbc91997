"""Avro: schemas as a tree, their text, and what can be read with which of them."""
