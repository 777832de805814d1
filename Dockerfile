# Switchboard over HTTP, with what remote children, traces and the bus need.
#
#   docker build -t switchboard .
#   docker run --rm -p 127.0.0.1:3100:3100 -v "$PWD:/workspace" switchboard
#
# The token of each start is in .switchboard/auth_token of the workspace, which the user of the container must be able
# to write to (--user "$(id -u):$(id -g)"). Children that are programs run inside: build on this image to add theirs.

FROM python:3.13-slim AS build
WORKDIR /build
COPY requirements/core.lock requirements/image.lock requirements/
RUN python -m venv /opt/switchboard \
 && python -m pip install --no-cache-dir --require-hashes -r requirements/core.lock \
 && /opt/switchboard/bin/pip install --no-cache-dir --require-hashes -r requirements/image.lock
COPY . .
RUN python -m pip wheel --no-cache-dir --no-deps --no-build-isolation --no-index --wheel-dir /wheels . \
 && /opt/switchboard/bin/pip install --no-cache-dir --no-deps --no-index /wheels/*.whl \
 && /opt/switchboard/bin/pip check

FROM python:3.13-slim
RUN useradd --uid 10001 --create-home switchboard \
 && mkdir -p /workspace/.switchboard && chown -R switchboard:switchboard /workspace
COPY --from=build /opt/switchboard /opt/switchboard
ENV PATH="/opt/switchboard/bin:$PATH" PYTHONUNBUFFERED=1
USER 10001
WORKDIR /workspace
EXPOSE 3100
# `health` needs no token; `localhost` is a name the server always goes by.
HEALTHCHECK --interval=30s --timeout=5s --start-period=10s --retries=3 \
  CMD ["python", "-c", "import urllib.request as u; u.urlopen('http://localhost:3100/health', timeout=4)"]
STOPSIGNAL SIGTERM
ENTRYPOINT ["switchboard"]
CMD ["serve", "--http", "0.0.0.0:3100"]
