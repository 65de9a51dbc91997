"""SASL: how a client says who it is, by PLAIN, SCRAM-SHA-256, SCRAM-SHA-512 or OAUTHBEARER."""
