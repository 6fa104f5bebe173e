# maven.sh: for the scripts that fetch a service's jars with Maven; to be sourced.

# need WHAT: refuse where the programs are not there.
need() {
  local program
  for program in java mvn; do
    command -v "$program" >/dev/null || { echo "error: fetching $1 needs $program" >&2; exit 7; }
  done
}

# fetch WHAT DIRECTORY ARTIFACT…: put artifacts and what they need at run time into a directory.
#
# A group in $without is left out of what they need.
fetch() {
  local what=$1 directory=$2 artifact group name version left dependencies= exclusions=
  shift 2
  for left in ${without:-}; do
    exclusions+="<exclusion><groupId>$left</groupId><artifactId>*</artifactId></exclusion>"
  done
  for artifact; do
    IFS=: read -r group name version <<<"$artifact"
    dependencies+="<dependency><groupId>$group</groupId><artifactId>$name</artifactId><version>$version</version>"
    dependencies+="<exclusions>$exclusions</exclusions></dependency>"
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
    dependency:copy-dependencies -DincludeScope=runtime -DoutputDirectory="$directory"; then
    echo "error: $what cannot be fetched" >&2
    exit 5
  fi
  rm -rf "$project"
}
