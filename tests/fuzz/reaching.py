"""Following a recipe to the gateway's answer."""

from typing import Any

import httpx

from tests.fuzz.deployment import deployment
from tests.fuzz.good_requests import GOOD, Operation, furnish
from tests.fuzz.recipes import Names, Recipe


def _filled(value: Any, names: Names) -> Any:
    """Return `value` with the names in braces replaced, at any depth."""
    match value:
        case dict():
            return {name: _filled(inner, names) for name, inner in value.items()}
        case list():
            return [_filled(inner, names) for inner in value]
        case str():
            return value.format(**names)
        case _:
            return value


async def reached(operation: Operation, recipe: Recipe) -> httpx.Response:
    """Return the answer to the operation's request, changed as the recipe says."""
    async with deployment() as deployed:
        names = await furnish(deployed)
        # After furnishing, because a limit may be too small even for that.
        deployed.limit(**recipe.settings)
        await recipe.before(deployed, names)
        deployed.table.fault = recipe.table
        if recipe.bucket is not None:
            deployed.bucket.fault = deployed.other_bucket.fault = recipe.bucket
        good, change = GOOD[operation], recipe.change
        method, path = operation
        request = {
            "params": {**good.params, **change.params},
            "headers": _filled({**good.headers, **change.headers}, names),
        }
        if change.content is not None:
            request["content"] = change.content
        elif (body := change.json if change.json is not None else good.json) is not None:
            request["json"] = _filled(body, names)
        places = {**names, **good.path, **change.path}
        return await deployed.ask(method, path.format(**places), **request)
