"""The processes that run connectors: beside a gateway, alone, or in one with stores in memory."""
