"""The Protobuf form of the schema registry: `.proto` text, descriptors, and what can read what.

`form.py` is the form itself, `compiler.py` runs protoc, `writing.py` and `option_text.py` make
`.proto` text of a descriptor, `normal_order.py` reorders what has no order, `comparing.py` says
why data of one schema cannot be read with another.
"""
