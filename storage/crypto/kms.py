"""Key-encryption keys in AWS KMS: they wrap and unwrap data keys, and never leave it.

The topic is the encryption context of every call, so a wrapped key serves no other topic, and
CloudTrail names the topic. A key is needed once in five minutes for each data key in use, so
retries and connections are those of the SDK.
"""

from typing import Any, Final

from aiobotocore.session import get_session
from botocore.config import Config
from botocore.exceptions import BotoCoreError, ClientError

from storage.errors import EncryptionKeyUnavailable, StoreUnavailable

ATTEMPTS_MAX: Final = 3

_CONFIG: Final = Config(
    connect_timeout=2,
    read_timeout=5,
    retries={"total_max_attempts": ATTEMPTS_MAX, "mode": "standard"},
)
_LATER: Final = frozenset(
    {
        "DependencyTimeoutException",
        "InternalFailure",
        "KMSInternalException",
        "KeyUnavailableException",
        "LimitExceededException",
        "RequestLimitExceeded",
        "ServiceUnavailableException",
        "ThrottlingException",
    }
)
"""Errors of KMS after which the same call may succeed."""


class KmsKey:
    """A `KeyWrapper` in AWS KMS."""

    def __init__(self, arn: str, region: str) -> None:
        self._arn = arn
        self._region = region

    async def wrap(self, secret: bytes, topic_id: bytes) -> bytes:
        answer = await self._call("encrypt", topic_id, Plaintext=secret)
        wrapped: bytes = answer["CiphertextBlob"]
        return wrapped

    async def unwrap(self, wrapped: bytes, topic_id: bytes) -> bytes:
        answer = await self._call("decrypt", topic_id, CiphertextBlob=wrapped)
        secret: bytes = answer["Plaintext"]
        return secret

    async def _call(self, name: str, topic_id: bytes, **arguments: bytes) -> dict[str, Any]:
        try:
            # A client for each call: calls are rare, and nothing must be closed at the end.
            async with get_session().create_client(
                "kms", region_name=self._region, config=_CONFIG
            ) as client:
                answer: dict[str, Any] = await getattr(client, name)(
                    KeyId=self._arn,
                    EncryptionContext={"riacho:topic": topic_id.hex()},
                    **arguments,
                )
                return answer
        except ClientError as error:
            code = error.response.get("Error", {}).get("Code", "")
            if code in _LATER:
                raise StoreUnavailable(f"AWS KMS does not answer now: {code}") from error
            raise EncryptionKeyUnavailable(f"AWS KMS refuses {self._arn}: {code}") from error
        except (BotoCoreError, OSError) as error:
            raise StoreUnavailable(f"AWS KMS cannot be reached: {error}") from error
