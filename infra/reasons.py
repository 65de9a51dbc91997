"""Why some findings of cdk-nag are accepted: every reason on one screen.

`accept` silences one finding on one construct, with a reason from this table. Tests check that
no permission has a wildcard without one.
"""

from collections.abc import Mapping
from typing import Final

from aws_cdk import Acknowledgment, Validations
from constructs import IConstruct

REASONS: Final[Mapping[str, str]] = {
    "object keys": (
        "Keys of objects are made up at run time, and every bucket belongs to this deployment "
        "alone, so all of its objects are meant."
    ),
    "job runs": (
        "The identifier of a run is known only after it was started; the runs of this one "
        "application are meant."
    ),
    "access logs": (
        "A log line for each request would be more objects than the data, and cost as much. "
        "CloudTrail data events can be switched on where an audit asks for them."
    ),
    "open on purpose": (
        "The deployment was asked to let requests through to Riacho, which knows callers by itself "
        "(auth=none); docs/deploy.md says what that means."
    ),
    "service metrics": (
        "Container Insights costs by the metric. Gateways have metrics of their own, and the "
        "alarms use those of the load balancer."
    ),
    "flow logs": (
        "The network holds the load balancer and the tasks, and nothing to be compared with. Flow "
        "logs cost by the gigabyte of traffic."
    ),
    "environment": (
        "The variables of the tasks say where the stores are. There is no secret in them."
    ),
    "registry token": (
        "ecr:GetAuthorizationToken knows no resource; everything else of the role names one."
    ),
    "latest python": (
        "It is the newest runtime that the package was tried with, and is supported until 2029; a "
        "newer one is a parameter away."
    ),
    "closed to the world": (
        "The group is open to the addresses of the network, or for a load balancer with a "
        "certificate to the internet on port 443, which is its purpose."
    ),
}


def accept(construct: IConstruct, finding: str, reason: str) -> None:
    """Silence `finding` on `construct` and its children, for the named reason."""
    Validations.of(construct).acknowledge(Acknowledgment(id=finding, reason=REASONS[reason]))
