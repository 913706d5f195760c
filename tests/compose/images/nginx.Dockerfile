# Stands for nginx: its command.
FROM edgewake-test/forky
CMD ["nginx", "-g", "daemon off;"]
