# shellcheck shell=bash disable=SC2034
# JDBC.  See ../run.sh and ../behaviours.py.

packages=(default-jdk-headless libgoogle-gson-java libpostgresql-jdbc-java python3)

CLASSES=/usr/share/java/postgresql.jar:/usr/share/java/gson.jar

have_packages() {
	command -v javac && [[ -f /usr/share/java/postgresql.jar && -f /usr/share/java/gson.jar ]] && command -v python3
}

run_tests() {
	javac -Xlint -Werror -cp "$CLASSES" -d classes ./*.java && ../behaviours.py java -cp "classes:$CLASSES" Jdbc
}
