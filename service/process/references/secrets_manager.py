"""AWS Secrets Manager: the one call that references need."""

import os
from typing import Any, Final

import boto3
from botocore.config import Config
from botocore.exceptions import BotoCoreError, ClientError

from storage.errors import InvalidConfig, StoreUnavailable

_CONFIG: Final = Config(connect_timeout=3, read_timeout=10, retries={"mode": "standard"})

_WRONG: Final = frozenset(
    {
        "AccessDeniedException",
        "DecryptionFailure",
        "InvalidParameterException",
        "InvalidRequestException",
        "ResourceNotFoundException",
        "ValidationException",
    }
)
"""Codes of what stays as it is until somebody changes something."""


def read_secret(name: str) -> str:
    """Return the text of the secret with this name or ARN, as it is now.

    Raises `InvalidConfig` if there is none for us, and `StoreUnavailable` if AWS does not answer.
    """
    region = name.split(":")[3] if name.startswith("arn:") else os.environ.get("AWS_REGION")
    reference = f"${{aws-secret:{name}}}"
    try:
        # boto3 by itself knows only AWS_DEFAULT_REGION.
        client: Any = boto3.client("secretsmanager", region_name=region, config=_CONFIG)
        found = client.get_secret_value(SecretId=name)
    except ClientError as error:
        # Its code, and no more: a message may repeat what was sent.
        code = str(error.response.get("Error", {}).get("Code", "unknown"))
        raise _error(code)(f"{reference}: AWS answered {code}") from None
    except BotoCoreError as error:
        raise StoreUnavailable(f"{reference}: {type(error).__name__}") from None
    text = found.get("SecretString")
    if not isinstance(text, str):
        raise InvalidConfig(f"{reference}: the secret is binary, and only text is used")
    return text


def _error(code: str) -> type[InvalidConfig] | type[StoreUnavailable]:
    return InvalidConfig if code in _WRONG else StoreUnavailable
