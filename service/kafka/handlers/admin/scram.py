"""DescribeUserScramCredentials and AlterUserScramCredentials: users with passwords.

Clients send the salted password, never the password. A user can be made before security is on.
"""

from collections.abc import Sequence
from typing import Final, TypeAlias

from service.kafka.call import KafkaCall
from service.kafka.handlers.admin.answers import Judged, KafkaRefusal, repeated
from service.kafka.parts import Parts
from service.kafka.protocol.error_codes import ErrorCode
from service.kafka.protocol.messages.users import (
    AlterUserScramCredentialsRequest,
    AlterUserScramCredentialsResponse,
    AlterUserScramCredentialsResult,
    CredentialInfo,
    DescribeUserScramCredentialsRequest,
    DescribeUserScramCredentialsResponse,
    DescribeUserScramCredentialsResult,
    ScramCredentialDeletion,
    ScramCredentialUpsertion,
)
from service.security.acls import Operation, ResourceType
from service.security.api_keys.scram import (
    ITERATIONS_MAX,
    ITERATIONS_MIN,
    ScramMechanism,
    ScramVerifier,
    of_salted,
)
from service.security.api_keys.users import ScramUser, Users, parse_user_name
from service.security.caller import Caller
from storage.errors import ClusterUnauthorized, InvalidRequest
from storage.tasks import in_turns

MECHANISMS: Final = {1: ScramMechanism.SHA_256, 2: ScramMechanism.SHA_512}
_Changes: TypeAlias = tuple[list[ScramCredentialDeletion], list[ScramCredentialUpsertion]]
"""What is deleted and what is set of one user."""


class ScramAdmin:
    def __init__(self, parts: Parts) -> None:
        self._users = Users(parts.gateway.metadata, parts.gateway.world)
        self._security = parts.security
        self._super_users = parts.gateway.settings.super_user_names

    async def describe(
        self, call: KafkaCall, request: DescribeUserScramCredentialsRequest
    ) -> DescribeUserScramCredentialsResponse:
        response = DescribeUserScramCredentialsResponse()
        with Judged(call.caller) as judged:
            call.caller.require(Operation.DESCRIBE, ResourceType.CLUSTER)
            if request.users:
                names = [user.name for user in request.users]
                twice = repeated(names)
                response.results = [
                    await self._described(call.caller, name, is_repeated=name in twice)
                    async for name in in_turns(dict.fromkeys(names))
                ]
            else:
                response.results = [_info(user) for user in await self._users.all()]
        response.error_code, response.error_message = judged.code, judged.text
        return response

    async def _described(
        self, caller: Caller, name: str, *, is_repeated: bool
    ) -> DescribeUserScramCredentialsResult:
        with Judged(caller) as judged:
            if is_repeated:
                raise KafkaRefusal(
                    ErrorCode.DUPLICATE_RESOURCE, "the request names this user twice"
                )
            user = await self._users.find(name)
            if user is not None:
                return _info(user)
            raise KafkaRefusal(ErrorCode.RESOURCE_NOT_FOUND, "there is no such user")
        return DescribeUserScramCredentialsResult(
            user=name, error_code=judged.code, error_message=judged.text
        )

    async def alter(
        self, call: KafkaCall, request: AlterUserScramCredentialsRequest
    ) -> AlterUserScramCredentialsResponse:
        response = AlterUserScramCredentialsResponse()
        wanted: dict[str, _Changes] = {}
        for deleted in request.deletions:
            wanted.setdefault(deleted.name, ([], []))[0].append(deleted)
        for set_now in request.upsertions:
            wanted.setdefault(set_now.name, ([], []))[1].append(set_now)
        async for name, (deletions, upsertions) in in_turns(wanted.items()):
            with Judged(call.caller) as judged:
                await self._alter(call.caller, name, deletions, upsertions)
            response.results.append(
                AlterUserScramCredentialsResult(
                    user=name, error_code=judged.code, error_message=judged.text
                )
            )
        return response

    async def _alter(
        self,
        caller: Caller,
        name: str,
        deletions: Sequence[ScramCredentialDeletion],
        upsertions: Sequence[ScramCredentialUpsertion],
    ) -> None:
        """Change one user, after everything about it was found to be right."""
        caller.require(Operation.ALTER, ResourceType.CLUSTER)
        if f"User:{name}" in self._super_users and not caller.is_super:
            raise ClusterUnauthorized(
                f"{caller.principal} is no super user, so it cannot give one a password"
            )
        _check_name(name)
        gone = [_mechanism(each.mechanism) for each in deletions]
        if repeated([*gone, *(_mechanism(each.mechanism) for each in upsertions)]):
            raise KafkaRefusal(
                ErrorCode.DUPLICATE_RESOURCE, "the request names a credential of this user twice"
            )
        user = await self._users.find(name) if gone else None
        if gone and (user is None or any(user.verifier(each) is None for each in gone)):
            raise KafkaRefusal(
                ErrorCode.RESOURCE_NOT_FOUND, "there is no such credential, so it is not deleted"
            )
        verifiers = [_verifier(each) for each in upsertions]
        if verifiers:
            await self._users.set(name, verifiers)
        for mechanism in gone:
            await self._users.delete(name, mechanism)
        if self._security is not None:
            self._security.view.expire()
        done = [f"set {each.mechanism}" for each in verifiers] + [f"delete {m}" for m in gone]
        caller.changed(
            Operation.ALTER, ResourceType.CLUSTER, f"password of User:{name}: {', '.join(done)}"
        )


def _info(user: ScramUser) -> DescribeUserScramCredentialsResult:
    numbers = {mechanism: number for number, mechanism in MECHANISMS.items()}
    return DescribeUserScramCredentialsResult(
        user=user.name,
        credential_infos=[
            CredentialInfo(mechanism=numbers[each.mechanism], iterations=each.iterations)
            for each in user.verifiers
        ],
    )


def _check_name(name: str) -> None:
    try:
        parse_user_name(name)
    except InvalidRequest as error:
        raise KafkaRefusal(ErrorCode.UNACCEPTABLE_CREDENTIAL, str(error)) from None


def _mechanism(number: int) -> ScramMechanism:
    if number not in MECHANISMS:
        raise KafkaRefusal(
            ErrorCode.UNSUPPORTED_SASL_MECHANISM, f"there is no SCRAM mechanism {number}"
        )
    return MECHANISMS[number]


def _verifier(new: ScramCredentialUpsertion) -> ScramVerifier:
    if not ITERATIONS_MIN <= new.iterations <= ITERATIONS_MAX:
        raise KafkaRefusal(
            ErrorCode.UNACCEPTABLE_CREDENTIAL,
            f"iterations: from {ITERATIONS_MIN} to {ITERATIONS_MAX}, not {new.iterations}",
        )
    try:
        return of_salted(
            _mechanism(new.mechanism), bytes(new.salted_password), bytes(new.salt), new.iterations
        )
    except InvalidRequest as error:
        raise KafkaRefusal(ErrorCode.UNACCEPTABLE_CREDENTIAL, str(error)) from None
