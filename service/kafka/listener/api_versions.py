"""ApiVersions: what this gateway serves, and which protocols of transactions and groups it speaks.

It is the first request of almost every client, and the only one whose version need not be known:
who asks in a newer one is told the range of ApiVersions itself, in version 0, and asks again.
"""

import re
from collections.abc import Collection
from typing import Final

from service.kafka.call import Handler, KafkaCall
from service.kafka.protocol.apis import APIS, Api
from service.kafka.protocol.error_codes import ErrorCode
from service.kafka.protocol.messages.handshake import (
    ApiVersion,
    ApiVersionsRequest,
    ApiVersionsResponse,
    FinalizedFeatureKey,
    SupportedFeatureKey,
)

FEATURES: Final = {"group.version": 1, "transaction.version": 2}
"""Consumer groups of KIP-848, and an epoch for each transaction (KIP-890)."""

_SOFTWARE: Final = re.compile(r"[a-zA-Z0-9](?:[a-zA-Z0-9\-.]*[a-zA-Z0-9])?")


def api_versions(keys: Collection[int]) -> Handler:
    """Return the handler that advertises exactly `keys`."""
    served = [_range(key) for key in sorted(keys)]

    async def answer(call: KafkaCall, request: ApiVersionsRequest) -> ApiVersionsResponse:
        if call.version >= 3:
            name, version = request.client_software_name, request.client_software_version
            if not (_SOFTWARE.fullmatch(name) and _SOFTWARE.fullmatch(version)):
                return ApiVersionsResponse(error_code=ErrorCode.INVALID_REQUEST)
            call.peer.software = f"{name} {version}"
        return ApiVersionsResponse(
            api_keys=list(served),
            supported_features=[
                SupportedFeatureKey(name=name, min_version=0, max_version=level)
                for name, level in FEATURES.items()
                # Clients of version 3 fail at a range that begins with 0 (KAFKA-17011).
                if call.version >= 4
            ],
            finalized_features_epoch=0,
            finalized_features=[
                FinalizedFeatureKey(name=name, min_version_level=level, max_version_level=level)
                for name, level in FEATURES.items()
            ],
        )

    return answer


def unsupported_version() -> ApiVersionsResponse:
    """Return what a client hears that asked in a version we do not know; written in version 0."""
    return ApiVersionsResponse(
        error_code=ErrorCode.UNSUPPORTED_VERSION, api_keys=[_range(Api.API_VERSIONS)]
    )


def _range(key: int) -> ApiVersion:
    versions = APIS[Api(key)].versions
    return ApiVersion(api_key=key, min_version=versions.first, max_version=versions.last)
