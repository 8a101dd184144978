# Debian 13's tools and the harness: the large part of the session image, which seldom changes.
# The harness may be executed and not read (0711, root's): the kernel then makes its process
# non-dumpable, so nothing in the session reaches its memory or its standard output. Owner and
# mode come from the build context: a later chmod would store its 402 MB twice.
FROM scratch
ENV PATH=/usr/local/bin:/usr/bin:/bin:/usr/sbin:/sbin LANG=C.UTF-8
CMD ["/bin/bash"]
ADD rootfs.tar /
ADD harness.tar /
# The stand-in that runs the attack list in the harness's place, execute-only as it is.
RUN install -m 0711 /usr/bin/python3 /opt/harness/python-harness
