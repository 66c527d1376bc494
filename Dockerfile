# Two images from one file:
#   docker build -t pocketmq .                          name server, broker, client
#   docker build -t pocketmq-spark --target spark .     the same and Spark with a Java runtime
FROM python:3.13-slim AS build
WORKDIR /build
COPY pyproject.toml README.md LICENSE pyspark_rocketmq.py ./
COPY pocketmq pocketmq
RUN pip wheel --no-cache-dir --no-deps --wheel-dir /wheels .

FROM python:3.13-slim AS base
COPY --from=build /wheels /wheels
# The volume of the stores belongs to the user that the servers run as.
RUN useradd --create-home rocketmq && install -d -o rocketmq /data
VOLUME /data
ENTRYPOINT ["pocketmq"]

FROM base AS spark
RUN apt-get update \
    && apt-get install --yes --no-install-recommends default-jre-headless \
    && rm -rf /var/lib/apt/lists/*
RUN pip install --no-cache-dir "$(echo /wheels/*.whl)[server,spark]"
USER rocketmq

# Last, so that it is what a build without --target makes.
FROM base AS server
RUN pip install --no-cache-dir "$(echo /wheels/*.whl)[server]"
USER rocketmq
EXPOSE 9876 10911
CMD ["serve", "--store", "/data", "--bind", "0.0.0.0"]
