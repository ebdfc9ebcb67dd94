# The command and the package from a wheel that `scripts/wheel` built. Untried: there is no Docker where this is written.
FROM python:3.11-slim
COPY dist/hapo-*.whl /tmp/
RUN pip install --no-cache-dir /tmp/hapo-*.whl && rm /tmp/hapo-*.whl
ENTRYPOINT ["hapo"]
