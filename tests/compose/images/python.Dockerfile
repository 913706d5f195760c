# Stands for the image of Python that deploy/Dockerfile begins with.
FROM edgewake-test/bookworm
RUN ln -s /usr/bin/python3 /usr/local/bin/python
