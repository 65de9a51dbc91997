# A gateway in a container. Nothing is written to its root: run it with --read-only --tmpfs /tmp.
#
#   docker build -t riacho .
#   docker run --read-only --tmpfs /tmp -v riacho:/data -p 8080:8080 --name riacho riacho
#   docker exec riacho riacho keys create --super --principal User:root
#
# It listens for others, so callers need a key; the second line makes the first one.

ARG PYTHON=3.11

FROM python:${PYTHON}-slim-bookworm AS build
WORKDIR /build
ENV PIP_DISABLE_PIP_VERSION_CHECK=1 PIP_NO_CACHE_DIR=1
RUN python -m venv /opt/riacho
# Dependencies change rarely, so they have a separate layer.
COPY pyproject.toml ./
RUN python -c "import tomllib; p = tomllib.load(open('pyproject.toml', 'rb'))['project']; print(*p['dependencies'], *p['optional-dependencies']['security'], sep='\n')" \
        > requirements.txt \
    && /opt/riacho/bin/pip install --only-binary :all: --requirement requirements.txt
COPY README.md LICENSE ./
COPY lambdas lambdas
COPY riacho riacho
COPY service service
COPY storage storage
RUN /opt/riacho/bin/pip install --no-deps . \
    && /opt/riacho/bin/pip check \
    && /opt/riacho/bin/python -m compileall -q /opt/riacho/lib \
    && /opt/riacho/bin/riacho version

FROM python:${PYTHON}-slim-bookworm
RUN useradd --uid 10001 --no-create-home --shell /usr/sbin/nologin riacho \
    && install --directory --owner=riacho --group=riacho /data
COPY --from=build /opt/riacho /opt/riacho
ENV PATH=/opt/riacho/bin:$PATH \
    PYTHONDONTWRITEBYTECODE=1 \
    RIACHO_DATA=/data \
    RIACHO_HOST=0.0.0.0
USER 10001
WORKDIR /data
VOLUME /data
EXPOSE 8080
HEALTHCHECK --interval=10s --timeout=5s --start-period=30s \
    CMD ["python", "-c", "import os, ssl, urllib.request; e = os.environ; urllib.request.urlopen(f\"http{'s' if e.get('RIACHO_TLS_CERT') else ''}://127.0.0.1:{e.get('RIACHO_PORT', 8080)}/ready\", timeout=4, context=ssl._create_unverified_context())"]
ENTRYPOINT ["riacho"]
CMD ["serve"]
