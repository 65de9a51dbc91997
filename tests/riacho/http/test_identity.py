"""Where credentials come from, and where they never go."""

import base64

import httpx
import pytest

from riacho import Admin
from riacho.errors import GatewayUnreachable
from riacho.http.credentials import auth_of
from riacho.http.gateway import Gateway
from riacho.http.identity import Credentials, split_url
from storage.errors import InvalidConfig, Rejected
from tests.commands import exit_code
from tests.gateway import free_port
from tests.riacho.http.answering import Answer, answering

URL = "http://gateway"


def header(given: Credentials, environment: dict[str, str]) -> str:
    auth = auth_of(URL, environment, given)
    assert auth is not None
    request = next(auth.sync_auth_flow(httpx.Request("GET", URL)))
    kind, _, value = request.headers["authorization"].partition(" ")
    return base64.b64decode(value).decode() if kind == "Basic" else value


def test_what_a_program_gives_comes_before_the_environment() -> None:
    user = {"RIACHO_USER": "id", "RIACHO_PASSWORD": "s:cret"}

    assert header(Credentials(), user) == "id:s:cret"
    assert header(Credentials(basic=("ana", "x")), user) == "ana:x"


@pytest.mark.parametrize(
    ("environment", "reason"),
    [
        ({"RIACHO_USER": "id"}, "need each other"),
        ({"RIACHO_PASSWORD": "x"}, "need each other"),
        ({"RIACHO_USER": "id", "RIACHO_PASSWORD": "x", "RIACHO_TOKEN": "y"}, "exclude each other"),
    ],
)
def test_half_or_two_credentials_are_refused(environment: dict[str, str], reason: str) -> None:
    with pytest.raises(InvalidConfig, match=reason):
        auth_of(URL, environment)


def test_a_program_gives_one() -> None:
    with pytest.raises(InvalidConfig, match="exclude each other"):
        Admin(URL, token="a", basic=("b", "c"))


def test_the_url_may_hold_user_and_password_but_never_shows_them() -> None:
    assert split_url("https://id:p%40ss@host:1/base/") == ("https://host:1/base", ("id", "p@ss"))
    assert split_url("http://[::1]:8080") == ("http://[::1]:8080", None)
    assert Gateway("https://id:hush@host").url == "https://host"
    for url in ("ftp://id:hush@host", "id:hush@host", "https://", "http://[x:hush@h"):
        with pytest.raises(ValueError, match="begins with http") as caught:
            Gateway(url)
        assert "hush" not in str(caught.value)
    assert "hush" not in repr(Credentials(basic=("id", "hush"), client_cert=("a", "b", "hush")))
    assert "hush" not in repr(Credentials(token="hush"))


def test_an_error_does_not_show_the_password() -> None:
    url = f"http://id:hush@127.0.0.1:{free_port()}"
    code, done = exit_code("topic", "list", env={"RIACHO_URL": url})

    assert code == 1
    assert b"no connection to http://127.0.0.1" in done.stderr
    assert b"hush" not in done.stderr
    with Admin(url) as admin, pytest.raises(GatewayUnreachable) as caught:
        admin.list_topics()
    assert "hush" not in str(caught.value)


def test_credentials_do_not_follow_a_redirect() -> None:
    with answering(lambda *_: Answer(200, {"topics": []})) as other:
        elsewhere = {"location": f"{other.url}/v1/topics"}
        with answering(lambda *_: Answer(307, None, elsewhere)) as server:
            url = server.url.replace("http://", "http://id:hush@")
            with Admin(url) as admin, pytest.raises(Rejected, match="redirects are not followed"):
                admin.list_topics()
            [asked] = server.asked
            assert asked.authorization == "Basic " + base64.b64encode(b"id:hush").decode()
        assert other.asked == []
