"""Protobuf: data of messages of a file, as Protobuf's JSON mapping.

`codec` is the whole, `sizes` bounds what the bytes of a message can become, `misfits` finds where a
value does not fit.
"""
