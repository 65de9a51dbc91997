"""Bearer tokens of an identity provider: JWT (RFC 7519) signed with keys that it publishes.

A token passes these modules, in this order; only `verifier` knows all of them:

    parsing    text to a header that may be trusted to choose a key, and what was signed. Pure
    key_set    the published keys, of which only good ones for one algorithm are used. Pure
    key_source where they come from, how long they are kept, when they are fetched again
    fetching   HTTPS with limits, to places that it is safe to call
    claims     issuer, audience, times, scope, and the principal. Pure
"""
