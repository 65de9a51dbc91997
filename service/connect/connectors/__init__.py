"""Every connector, and the contract that tasks keep."""
