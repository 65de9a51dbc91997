"""The CDK is loaded with the tests, on the node that was chosen before."""

from infra import node_runtime

node_runtime.choose()
