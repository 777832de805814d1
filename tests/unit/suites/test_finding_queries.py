"""A hundred queries as people and models write them, over the tools of 65 published servers, with the tool they want.

The catalogs are not part of the repository: `bench/data.py` says where they are expected.
"""

from __future__ import annotations

import gzip
import json

import pytest
from msgspec import Raw

from bench.data import CATALOGS
from switchboard_mcp.gateway.suites.tool_search import search_document
from switchboard_mcp.suites.detail_levels import ToolView
from switchboard_mcp.suites.search import Index, SearchDocument

# The worst rank of any query, and how many must be first, and among the first five.
WORST_RANK = 7
FIRST = 78
AMONG_FIVE = 98

# Each line: the query, and the tools that are right.
QUERIES = """
what time is it in Tokyo | get-current-time
what's the weather going to be like in Lisbon tomorrow? | weather_forecast maps_weather map_weather
how do I open a PR | create_pull_request
list open PRs | list_pull_requests
merge the PR | merge_pull_request
open an MR on gitlab | create_merge_request
file a bug in github | create_issue
create a new repo | create_repository
who changed this line | git_blame
undo the last commit | git_reset
what changed since yesterday in this repository | git_log git_diff git_changelog_analyze list_commits
stash my changes | git_stash
clone a repository from a url | git_clone
show me the staged changes | git_diff_staged
take a screenshot of the page | playwright_screenshot puppeteer_screenshot browser_take_screenshot
click on the login button | playwright_click puppeteer_click browser_click
fill in a form | browser_fill_form playwright_fill puppeteer_fill
go to example.com | browser_navigate playwright_navigate puppeteer_navigate
upload a file in the browser | browser_file_upload playwright_upload_file
scrape a webpage | scrape_webpage
crawl an entire website | crawl_webpages
search the web | brave_web_search search_with_bing
find restaurants near me | brave_local_search maps_around_search maps_search_places map_search_places
convert an address to coordinates | maps_geocode maps_geo map_geocode geocoding search_and_geocode_tool
driving directions from Berlin to Munich | maps_direction_driving maps_directions map_directions directions_tool
how far is it from here to the airport | maps_distance maps_distance_matrix map_distance_matrix distance_tool
what's the altitude of this place | maps_elevation elevation
air pollution in Delhi | air_quality
are there floods coming | flood_forecast
how high are the waves | marine_weather
k8s pod logs | pods_log get_pod_logs
list k8s namespaces | namespaces_list
run a command inside a pod | pods_exec
which pods use the most memory | pods_top
kubernetes events | events_list get_k8s_events
delete a pod | pods_delete
apply a yaml manifest to the cluster | apply_yaml resources_create_or_update
run a SQL query | query run_query execute_sql execute
list the tables of the database | list_tables
describe table columns | describe_table get_table_schema
apply a database migration | apply_migration
mongodb: insert documents | insert-many
drop a collection in mongo | drop-collection
set a redis key to expire | expire
publish to a redis channel | publish
push onto a list in redis | lpush rpush
count the documents in a collection | count chroma_get_collection_count
similarity search in chroma | chroma_query_documents
elasticsearch cluster health | get_cluster_health
search documents in an index | search_documents search_redis_documents
send an email | send-mail
reply to an email | reply-mail-message reply-all-mail-message create-reply-draft
schedule a meeting | create-event create-calendar-event
when am I free this week | get-freebusy get-schedule find-meeting-times
accept the invitation | respond-to-event accept-calendar-event
delete my appointment | delete-event delete-calendar-event
send a message in a teams chat | send-chat-message
create a todo | create_tasks create-todo-task
mark task as done | close_tasks update-todo-task
add a comment to the issue | add_issue_comment linear_add_comment linear_createComment
assign a ticket in linear | linear_assignIssue linear_updateIssue linear_update_issue
search linear issues | linear_search_issues linear_searchIssues
list linear teams | linear_getTeams
create an invoice for a customer | create_invoice
give the customer their money back | create_refund
list subscriptions in stripe | list_subscriptions
what's my stripe balance | retrieve_balance
create a payment link | create_payment_link
send an SMS | TwilioApiV2010--CreateMessage
make a phone call | TwilioApiV2010--CreateCall make_outbound_call
turn off the living room lights | ha_call_service ha_bulk_control
read this text aloud | text_to_speech
transcribe an audio file | speech_to_text
clone my voice | voice_clone
work out 15% of 230 | calculate
create a spreadsheet | create_workbook
add a chart to the excel sheet | create_chart
import a CSV into excel | import_csv
rename the worksheet | rename_sheet
look something up on wikipedia | search_wikipedia wikipedia_search_wikipedia search
summary of a wikipedia article | get_summary wikipedia_get_summary summarize_article_for_query
read a notion page | API-retrieve-a-page
download images from figma | download_figma_images
draw a mermaid diagram | open_drawio_mermaid
what did the last build fail with | get_build_failure_logs
find flaky tests | find_flaky_tests
rerun the failed workflow in CI | rerun_workflow
how much does an EC2 instance cost | get_pricing
list IAM users | list_users
create an access key | create_access_key
which events did this user cause, says cloudtrail | lookup_events
query cloudwatch metrics | get_metric_data get_cloudwatch_metrics
list s3-like buckets in cloudflare r2 | r2_list_buckets
deploy a cloudflare worker | worker_deploy worker_put
show files, do not delete them, in a deployment | listDeploymentFiles
cancel a deployment on vercel | cancelDeployment
Wetter in Berlin morgen | weather_forecast maps_weather map_weather
crear una rama en git | git_create_branch create_branch git_branch
envoyer un message texte | push_text_message send-chat-message TwilioApiV2010--CreateMessage broadcast_text_message
run a command over ssh | execute_command execute_command_async
launch an app on the phone | mobile_launch_app
"""


def documents() -> list[SearchDocument]:
    """All tools, as `find` indexes them."""
    servers = json.loads(gzip.decompress(CATALOGS.read_bytes()))["servers"]
    return [
        search_document(
            ToolView(
                tool["name"], tool.get("description") or "", Raw(json.dumps(tool.get("inputSchema")).encode())
            ),
            server["server"],
        )
        for server in servers
        for tool in server["tools"]
    ]


def ranks() -> dict[str, int]:
    """Return the rank of the wanted tool of each query; 0 if it is not among the first fifty."""
    tools = documents()
    index = Index(tools)
    found = {}
    for line in QUERIES.strip().splitlines():
        query, _, wanted = line.partition(" | ")
        names = [tools[hit.place].name for hit in index.search(query, 50)]
        found[query] = next((n for n, name in enumerate(names, 1) if name in wanted.split()), 0)
    return found


@pytest.mark.skipif(not CATALOGS.exists(), reason="the catalogs are not here")
def test_a_hundred_queries_find_their_tool_among_the_first() -> None:
    found = ranks()
    assert len(found) >= 100
    assert {query: rank for query, rank in found.items() if not 0 < rank <= WORST_RANK} == {}
    assert sum(rank <= 5 for rank in found.values()) >= AMONG_FIVE
    assert sum(rank == 1 for rank in found.values()) >= FIRST
    assert found["what time is it in Tokyo"] == 1
