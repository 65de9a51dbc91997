"""A token of an identity provider opens the door, as the principal that it names."""

import httpx
import pytest
from joserfc.jwk import RSAKey

from service.app import create_app
from service.settings import Settings
from service.world.clock import real_world
from tests.service.security.oidc.provider import Provider, provider

STRANGER = RSAKey.generate_key(2048, {"kid": "rsa"})


def claims(idp: Provider) -> dict[str, int]:
    now_s = real_world().now_ms() // 1000
    return {"iat": now_s, "exp": now_s + 600}


@pytest.mark.anyio
async def test_a_token_is_a_credential_like_others() -> None:
    with provider() as idp:
        app = create_app(
            Settings(
                zones="a=memory://",
                metadata="memory://",
                log_level="error",
                security="on",
                super_users="User:root",
                jwt_issuer=idp.url,
                jwt_audience="riacho",
            )
        )
        transport = httpx.ASGITransport(app=app)
        async with httpx.AsyncClient(transport=transport, base_url="http://riacho") as client:

            async def whoami(token: str) -> httpx.Response:
                headers = {"authorization": f"Bearer {token}"}
                return await client.get("/v1/whoami", headers=headers)

            found = (await whoami(idp.token(**claims(idp)))).json()
            assert (found["principal"], found["door"], found["super"]) == ("User:ana", "jwt", False)
            root = (await whoami(idp.token(**claims(idp), sub="root"))).json()
            assert root["super"]
            refused = await whoami(idp.token(STRANGER, **claims(idp)))
            assert refused.status_code == 401
            assert refused.headers["www-authenticate"]
            idp.status = 500
        await app.gateway.aclose()


@pytest.mark.anyio
async def test_a_provider_that_is_down_is_no_fault_of_the_caller() -> None:
    with provider() as idp:
        idp.status = 500
        app = create_app(
            Settings(
                zones="a=memory://",
                metadata="memory://",
                log_level="error",
                security="on",
                jwt_issuer=idp.url,
                jwt_audience="riacho",
            )
        )
        transport = httpx.ASGITransport(app=app)
        async with httpx.AsyncClient(transport=transport, base_url="http://riacho") as client:
            headers = {"authorization": f"Bearer {idp.token(**claims(idp))}"}
            answer = await client.get("/v1/whoami", headers=headers)
        await app.gateway.aclose()

    assert (answer.status_code, answer.json()["retryable"]) == (503, True)
