"""The processes that run connectors: beside a gateway, alone, or inside one with stores in memory."""
