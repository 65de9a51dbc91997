"""`riacho connect …`: connectors on the command line."""
