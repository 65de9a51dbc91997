"""Schemas at the edge: records that are encoded as they come and decoded as they go.

`late` is all that other rooms import when they are loaded; the rest comes with the first schema.
"""
