"""How `riacho cluster` shows a cluster."""

from typing import Any

import typer

from riacho.cli.output import print_fields, print_table


def show(cluster: dict[str, Any]) -> None:
    """Print the gateways, the zones and the counts of partitions as tables."""
    partitions = cluster["partitions"]
    print_fields(
        {
            "version": cluster["version"],
            "answered by": cluster["gateway"],
            "controller": cluster["controller"],
            "topics": cluster["topics"],
            "partitions": partitions["count"],
            "under-replicated": partitions["under_replicated"],
            "under min ISR": partitions["under_min_isr"],
            "offline": partitions["offline"],
            "being moved": partitions["reassigning"],
            **_verified(cluster.get("verification")),
        }
    )
    typer.echo()
    print_table(
        ("gateway", "url", "host", "pid", "version", "broker", "for Kafka", "cannot reach"),
        [
            (
                gateway["id"],
                gateway["url"],
                gateway["host"],
                gateway["pid"],
                gateway["version"],
                *_broker(gateway.get("kafka")),
                gateway["failing"] or None,
            )
            for gateway in cluster["gateways"]
        ],
    )
    typer.echo()
    print_table(
        ("zone", "kind", "state", "ms", "leaders", "replicas", "in sync", "note"),
        [
            (
                zone["name"],
                zone["kind"],
                zone["state"],
                zone["latency_ms"],
                zone["leaders"],
                zone["replicas"],
                zone["in_sync"],
                _note(zone),
            )
            for zone in cluster["zones"]
        ],
    )


def _broker(kafka: dict[str, Any] | None) -> tuple[int | None, str | None]:
    """Return the node id and the address for Kafka's clients."""
    if kafka is None:
        return None, None
    host = f"[{kafka['host']}]" if ":" in kafka["host"] else kafka["host"]
    return kafka["node_id"], f"{host}:{kafka['port']}"


def _verified(verification: dict[str, Any] | None) -> dict[str, str]:
    """Return a field that says what the last pass over zones in sync found."""
    if verification is None:
        return {}
    parts = [f"{verification['objects']} objects"]
    if not verification["finished_ms"]:
        parts.append("not finished")
    parts += [
        f"{verification[name]} {name}"
        for name in ("repaired", "lost", "skipped")
        if verification[name]
    ]
    return {"verified": ", ".join(parts)}


def _note(zone: dict[str, Any]) -> str:
    resync = zone["resync"]
    if zone["state"] != "online" or resync is None:
        return str(zone["reason"])
    parts = []
    if resync["lanes_behind"]:
        parts.append(
            f"{resync['lanes_behind']} lanes behind, {resync['objects_copied']} objects"
            f" ({resync['bytes_copied']} bytes) copied"
        )
    if resync["lost"]:
        parts.append(f"{resync['lost']} objects are lost")
    if resync["error"]:
        parts.append(resync["error"])
    return "; ".join(parts)
