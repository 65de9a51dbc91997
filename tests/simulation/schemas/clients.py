"""Clients of the registry: they register, delete, set levels and modes, and look things up.

They use few subjects and few schemas, so that they meet at the same items. Every copy of a request
records the gateway's answer, whether or not it arrived.
"""

import asyncio
import random
from collections.abc import Callable, Iterator
from typing import Any, Final
from urllib.parse import quote

from tests.checker.schema_history import (
    DONE,
    Deleting,
    Registering,
    SchemaHistory,
    SchemaLook,
    context_of,
)
from tests.simulation.hosts import Host
from tests.simulation.http import Net, exchange
from tests.simulation.schemas.labels import label_of, schema_of
from tests.simulation.schemas.plan import SchemaPlan

LEVELS: Final = ("BACKWARD", "FORWARD", "FULL", "NONE", "BACKWARD_TRANSITIVE", "FULL_TRANSITIVE")
LAST: Final = "last"
"""The subject that is registered when the faults are over."""

STORE, DOUBT = 50001, 50002

EXPECTED: Final = {
    "register": {409, 42201, 42205},
    "delete": {40401, 40402, 40404, 40405, 40406, 40407, 42205, 42206},
    "set": {40408, 40409, 42205},
    "look": {40401, 40402, 40403},
}
"""Codes that a client must expect besides those of a store that fails."""


class SchemaClients:
    def __init__(
        self,
        plan: SchemaPlan,
        chance: random.Random,
        hosts: Callable[[], list[Host]],
        now_s: Callable[[], float],
        trace: list[str],
    ) -> None:
        self.plan = plan
        self.history = SchemaHistory()
        self.is_over = False
        self._chance = chance
        self._hosts = hosts
        self._now_s = now_s
        self._trace = trace
        self._net = Net(plan.net, chance, hosts)

    def start(self) -> "Iterator[asyncio.Task[None]]":
        for client in range(self.plan.clients):
            yield asyncio.create_task(self._live(client))

    def calm_down(self) -> None:
        self.is_over = True
        self._net.calm_down()

    async def _live(self, client: int) -> None:
        plan, chance = self.plan, self._chance
        for _ in range(plan.calls):
            if self.is_over:
                return
            fate = chance.random()
            try:
                if fate < plan.deletes:
                    await self._delete(client)
                elif fate < plan.deletes + plan.rules:
                    await self._set(client)
                elif fate < plan.deletes + plan.rules + plan.looks:
                    await self._look(client)
                else:
                    await self._register(client, *self._some_schema())
            except TimeoutError:
                pass
            if chance.random() < 0.5:
                await asyncio.sleep(chance.expovariate(2))

    def _some_schema(self) -> tuple[str, str]:
        """Return a subject and the label of a schema."""
        plan, chance = self.plan, self._chance
        label = f"{chance.choice(plan.types)}.{chance.randrange(plan.flavours)}"
        bases = {
            each.subject: each.version
            for each in self.history.registered
            if each.version and each.subject in plan.bases
        }
        if chance.random() < (0.2 if bases else 0.4):
            return chance.choice(plan.bases), label
        subject = chance.choice(plan.subjects)
        if chance.random() < 0.4:
            base = f"{subject[: subject.rfind(':') + 1]}base"
            label += f">{base}:{bases.get(base, 1)}"
        return subject, label

    async def _register(self, client: int, subject: str, label: str) -> int | None:
        async def copy(host: Host) -> int | None:
            began_s, code, answer = self._now_s(), None, {}
            try:
                path = f"/subjects/{quote(subject)}/versions"
                code, answer = await self._ask(host, "register", "POST", path, schema_of(label))
                return code
            finally:
                call = Registering(
                    client,
                    subject,
                    label,
                    began_s,
                    self._now_s(),
                    code,
                    answer.get("id"),
                    answer.get("version"),
                )
                self.history.registered.append(call)

        return await self._net.send(copy)

    async def _delete(self, client: int) -> None:
        plan, chance = self.plan, self._chance
        subject = chance.choice(plan.subjects + plan.bases)
        version = 0 if chance.random() < 0.2 else chance.choice([1, 1, 2, 2, 3, 4, 5])
        is_permanent = False
        # Most subjects are never erased: of those more is known.
        erasable = [
            each
            for each in self.history.deleted
            if each.code == DONE and not each.is_permanent and each.subject.endswith(("s0", "base"))
        ]
        if erasable and chance.random() < 0.4:
            each = chance.choice(erasable)
            subject, version, is_permanent = each.subject, each.version, True
        elif chance.random() < 0.4:
            # What others refer to, or are about to.
            referred = [each.schema for each in self.history.registered if ">" in each.schema]
            if referred:
                subject, _, number = chance.choice(referred).partition(">")[2].rpartition(":")
                version = int(number)
        path = f"/subjects/{quote(subject)}" + (f"/versions/{version}" if version else "")

        async def copy(host: Host) -> None:
            began_s, code, gone = self._now_s(), None, ()
            try:
                query = "?permanent=true" if is_permanent else ""
                code, answer = await self._ask(host, "delete", "DELETE", path + query)
                if code == DONE:
                    gone = tuple(answer) if isinstance(answer, list) else (answer,)
            finally:
                ended_s = self._now_s()
                self.history.deleted.append(
                    Deleting(client, subject, version, is_permanent, began_s, ended_s, code, gone)
                )

        await self._net.send(copy)

    async def _set(self, _: int) -> None:
        """Set a level or a mode, or remove it."""
        chance = self._chance
        subject = chance.choice([*self.plan.subjects, ""])
        where = f"/{quote(subject)}" if subject else ""
        fate = chance.random()
        if fate < 0.2:
            await self._change("DELETE", f"/config{where}")
        elif fate < 0.7:
            level = {"compatibility": chance.choice(LEVELS)}
            await self._change("PUT", f"/config{where}", level)
        else:
            await self._change("PUT", f"/mode{where}", {"mode": "READONLY"})
            await asyncio.sleep(chance.expovariate(2))
            await self._change("DELETE", f"/mode{where}")

    async def _change(self, method: str, path: str, body: Any = None) -> None:
        async def copy(host: Host) -> None:
            await self._ask(host, "set", method, path, body)

        await self._net.send(copy)

    async def _look(self, client: int) -> None:
        chance = self._chance
        subject, label = self._some_schema()
        done = [each for each in self.history.registered if each.code == DONE]
        if done and chance.random() < 0.8:
            # What was registered last may not be known everywhere.
            call = done[-1] if chance.random() < 0.5 else chance.choice(done)
            subject, label, schema_id, version = (
                call.subject,
                call.schema,
                call.schema_id,
                call.version,
            )
        else:
            schema_id, version = chance.randint(1, 10), chance.randint(1, 5)
        asks = chance.choice(["id", "version", "schema", "versions"])
        about = {"id": schema_id, "version": version, "schema": label}.get(asks, "")
        await self._net.send(lambda host: self._look_at(host, client, asks, subject, str(about)))

    async def _look_at(self, host: Host, client: int, asks: str, subject: str, about: str) -> int:
        place, context = f"/subjects/{quote(subject)}", context_of(subject)
        prefix = "." if context == "." else f":{context}:"
        method, path, body = "GET", f"{place}/versions", None
        match asks:
            case "id":
                subject = prefix
                path = f"/schemas/ids/{about}" + ("" if context == "." else f"?subject={prefix}")
            case "version":
                path = f"{place}/versions/{about}"
            case "schema":
                method, path, body = "POST", place, schema_of(about)
        began_s = self._now_s()
        code, answer = await self._ask(host, "look", method, path, body)
        found: dict[str, Any] = {}
        if code == DONE and asks == "versions":
            found = {"listed": tuple(answer)}
        elif code == DONE:
            schema_id = int(about) if asks == "id" else answer["id"]
            found = {"schema": label_of(answer["schema"]), "schema_id": schema_id}
            found["version"] = answer.get("version")
        if code not in (STORE, DOUBT, 42201):
            self.history.looks.append(
                SchemaLook(client, asks, subject, about, began_s, self._now_s(), code, **found)
            )
        return code or DONE

    async def _ask(
        self, host: Host, what: str, method: str, path: str, body: Any = None
    ) -> tuple[int | None, Any]:
        """Return the code, None if the outcome is not known, and the answer."""
        status, answer = await exchange(host, method, path, body)
        code = DONE if status < 400 else answer["error_code"]
        self._trace.append(f"{self._now_s():.6f} {method} {path} {code} {answer}")
        if code not in {DONE, STORE, DOUBT, *EXPECTED[what]} and (what, code) != ("look", 42201):
            self.history.errors.append(f"{method} {path} at {self._now_s():.3f}: {answer}")
        return (None if code == DOUBT else code), (answer if code == DONE else {})

    # The end

    async def finish(self, give_up_s: float) -> list[str]:
        """Without faults: register something new, and find it by every gateway."""
        if not self.plan.clients:
            return []
        await self._net.settle()
        label = "int.last"
        while self._now_s() < give_up_s:
            try:
                await self._change("DELETE", "/mode")
                if await self._register(0, LAST, label) == DONE:
                    break
            except TimeoutError:
                pass
            await asyncio.sleep(1)
        else:
            return ["the registry takes no schema"]
        for host in self._hosts():
            for asks, about in (("version", "1"), ("schema", label), ("versions", "")):
                await self._look_at(host, 0, asks, LAST, about)
        await self._net.settle()
        return []
