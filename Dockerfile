# Two images from one file:
#   docker build -t pocketmq .                          name server, broker, client
#   docker build -t pocketmq-spark --target spark .     the same and Spark with a Java runtime
FROM python:3.13-slim AS build
WORKDIR /build
# For the accelerator (docs/performance.md).
RUN apt-get update && apt-get install --yes --no-install-recommends gcc libc6-dev
COPY pyproject.toml README.md LICENSE pyspark_rocketmq.py ./
COPY scripts/build_accelerator.py scripts/
COPY pocketmq pocketmq
RUN POCKETMQ_ACCELERATOR=1 pip wheel --no-cache-dir --no-deps --wheel-dir /wheels .

FROM python:3.13-slim AS base
# The volume of the stores belongs to the user that the servers run as. Kubernetes wants its number.
RUN useradd --uid 1000 --create-home rocketmq && install -d -o rocketmq /data
VOLUME /data
ENTRYPOINT ["pocketmq"]

FROM base AS spark
RUN apt-get update \
    && apt-get install --yes --no-install-recommends default-jre-headless \
    && rm -rf /var/lib/apt/lists/*
RUN --mount=type=bind,from=build,source=/wheels,target=/wheels \
    pip install --no-cache-dir "$(echo /wheels/*.whl)[server,spark]"
USER 1000

# Last, so that it is what a build without --target makes.
FROM base AS server
RUN --mount=type=bind,from=build,source=/wheels,target=/wheels \
    pip install --no-cache-dir "$(echo /wheels/*.whl)[server,proxy,metrics,dashboard,otlp]"
USER 1000
EXPOSE 9876 10911 8081 8082
# The page /ready at healthPort, else the port of a name server or of a broker. A container with other
# ports brings a check of its own.
HEALTHCHECK --interval=10s --timeout=5s --start-period=10m --start-interval=1s \
    CMD ["bash", "-c", "if exec 3<>/dev/tcp/127.0.0.1/8082; then printf 'GET /ready HTTP/1.0\\r\\n\\r\\n' >&3 && read -r _ status _ <&3 && [[ $status = 200 ]]; else exec 3<>/dev/tcp/127.0.0.1/9876 || exec 3<>/dev/tcp/127.0.0.1/10911; fi 2>/dev/null"]
CMD ["serve", "--store", "/data", "--bind", "0.0.0.0", "--set", "healthPort=8082"]
