# unwind and unwind-worker. The image holds git and tmux because the steps on a
# host run them; what they can reach from inside a container: docs/deployment.md.

FROM golang:1.26.8-bookworm AS build
WORKDIR /src
COPY go.mod go.sum ./
RUN go mod download
COPY . .
ARG VERSION=""
RUN CGO_ENABLED=0 go build -trimpath -buildvcs=false -ldflags "-s -w -X unwind/internal/version.release=${VERSION}" -o /out/unwind ./starter \
 && CGO_ENABLED=0 go build -trimpath -buildvcs=false -ldflags "-s -w -X unwind/internal/version.release=${VERSION}" -o /out/unwind-worker ./worker

FROM alpine:3.24.1
RUN apk add --no-cache ca-certificates git tmux \
 && adduser -D -u 10001 unwind \
 && install -d -m 700 -o unwind -g unwind /var/lib/unwind
COPY --from=build /out/ /usr/local/bin/
USER unwind
# A volume, so that the host's id outlives the container.
ENV UNWIND_STATE_DIR=/var/lib/unwind
ENTRYPOINT ["unwind-worker"]
