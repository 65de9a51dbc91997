"""Avro: the tree of a schema, and data of it.

`types` and `parsing` are the tree and how it is read. Data has its own code here, because a library
for Python neither refuses what does not fit with a place and a reason nor bounds what a few bytes
can become: `writing` and `reading` make one function for each type, which calls those of its parts;
`logical` has dates and decimals, `sizes` what values take, `codec` is the whole.
"""
