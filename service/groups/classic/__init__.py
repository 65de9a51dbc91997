"""Kafka's classic groups: members that elect a leader, who assigns; an opaque rendezvous."""
