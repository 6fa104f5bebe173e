# maven.sh: for the scripts that fetch a service's jars with Maven; to be sourced.

# need WHAT: refuse where the programs are not there.
need() {
  local program
  for program in java mvn; do
    command -v "$program" >/dev/null || { echo "error: fetching $1 needs $program" >&2; exit 7; }
  done
}

# fetch WHAT DIRECTORY PIN ARTIFACT…: put artifacts and what they need at run time into a directory.
#
# An artifact is GROUP:ARTIFACT:VERSION or GROUP:ARTIFACT:VERSION:CLASSIFIER. A group in $without, or one artifact as
# GROUP:ARTIFACT, is left out of what they need; *:* leaves out all of it. Every file has to be the one whose SHA-256 is
# in PIN, a file of scripts/pins; to pin others, run with HOLDFAST_PIN=1 and look at what has changed in it.
fetch() {
  local what=$1 directory=$2 pin=$PWD/scripts/pins/$3 artifact group name version classifier left dependencies= exclusions=
  shift 3
  for left in ${without:-}; do
    IFS=: read -r group name <<<"$left"
    exclusions+="<exclusion><groupId>$group</groupId><artifactId>${name:-*}</artifactId></exclusion>"
  done
  for artifact; do
    IFS=: read -r group name version classifier <<<"$artifact"
    dependencies+="<dependency><groupId>$group</groupId><artifactId>$name</artifactId><version>$version</version>"
    dependencies+="${classifier:+<classifier>$classifier</classifier>}<exclusions>$exclusions</exclusions></dependency>"
  done
  project=$(mktemp -d)
  trap 'rm -rf "$project"' EXIT
  cat >"$project/pom.xml" <<POM
<project>
  <modelVersion>4.0.0</modelVersion>
  <groupId>holdfast</groupId><artifactId>services</artifactId><version>1</version><packaging>pom</packaging>
  <dependencies>$dependencies</dependencies>
</project>
POM
  # A repository of its own: in that of the user Spark would find names of packages without their jars.
  if ! mvn -q -B -Dmaven.repo.local="$project/repository" -f "$project/pom.xml" \
    dependency:copy-dependencies -DincludeScope=runtime -DoutputDirectory="$project/jars"; then
    echo "error: $what cannot be fetched" >&2
    exit 5
  fi
  if [ -n "${HOLDFAST_PIN:-}" ]; then
    (cd "$project/jars" && sha256sum -- *) | LC_ALL=C sort -k 2 >"$pin"
  fi
  pinned "$what" "$project/jars" "$pin"
  mkdir -p "$directory"
  cp "$project/jars"/* "$directory"
  rm -rf "$project"
}

# pinned WHAT DIRECTORY PIN: refuse a directory that does not hold exactly the files of a list, byte for byte.
pinned() {
  local differences
  if ! differences=$(diff <(cd "$2" && sha256sum -- * | LC_ALL=C sort -k 2) "$3"); then
    echo "error: what was fetched for $1 is not what $3 names:" >&2
    echo "$differences" >&2
    exit 6
  fi
}
